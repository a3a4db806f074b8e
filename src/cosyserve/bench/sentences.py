"""Sentences to speak when none are given: from one word to a paragraph, easy and hard to read."""

from __future__ import annotations

ENGLISH = (
    "Good morning.",
    "The kettle is on, and the cups are already on the table.",
    "Would you mind closing the window before the rain comes in?",
    "After a long winter the river rose over its banks, and for three days nobody in the village "
    "could cross the bridge without getting wet feet.",
    "Yes.",
    "Your appointment is on Thursday at half past nine.",
    "She laughed, put down the letter, and walked out without another word.",
    "The recipe is simple: melt the butter slowly, stir in the flour, and add the milk a little at "
    "a time, so that no lumps are left when the sauce begins to thicken.",
    "Not today, thank you.",
    "Turn left at the second traffic light, then keep going until you see the library.",
    "I have counted them twice, and there are forty-seven.",
    "When the first telephones were installed, people were told to speak clearly, to hold the "
    "receiver close, and above all not to shout, because the wire would carry even a whisper.",
    "Where did you find it?",
    "The last train to the coast leaves from platform six in four minutes.",
    "Nobody expected the old clock to strike again, but at midnight it did.",
    "A good map leaves out almost everything. What remains is what a traveller needs, and the art "
    "of drawing it lies in knowing which road, which hill and which well that is.",
    "Wait a moment!",
    "Please enter the six digits that we have just sent to your phone.",
    "Three grey geese were grazing in the green grass by the gate.",
    "Bees tell each other where the flowers are by dancing: the angle of the dance gives the "
    "direction, its length the distance, and the others follow in the dark of the hive.",
    "That sounds wonderful.",
    "The museum is closed on Mondays, except in July and August.",
    "If the red light keeps blinking, switch the heater off and call us.",
    "He had learned to repair violins from his grandmother, who kept her tools in a tea chest and "
    "could tell by a single knock on the wood whether an instrument would ever sing again.",
    "Thank you for calling.",
    "Tomorrow will be mostly cloudy, with a light wind from the west.",
    "The package weighs about two and a half kilograms, so it fits in your bag.",
    "It is easy to forget how quiet a city can be at five in the morning, when the street sweepers "
    "have gone, the bakers are still indoors, and the first bus waits with its lights off.",
    "Open the door, please.",
    "My brother plays the cello, my sister the drums, and I turn the pages.",
    "Are you sure that this is the house with the blue shutters?",
    "We tested the new engine on a cold day, with an empty tank, on the steepest hill we could "
    "find; it coughed twice, thought about it, and then ran as smoothly as a sewing machine.",
    "Never mind.",
    "Every evening the lighthouse keeper wrote a single line in his book.",
    "The child asked why the moon follows the car, and for once no one knew what to say.",
    "There are two ways to cross the desert: with too much water, which is heavy, or with too "
    "little, which is worse. Those who have done it carry exactly one bottle more than they need, "
    "and give it away on the last day.",
    "See you at eight.",
    "Your balance is one hundred and twelve pounds and thirty pence.",
    "What a strange, soft, silvery sound those birch leaves make!",
    "The committee met in the spring, again in the summer, and once more when the leaves had "
    "fallen. By then the plan had become so short that everybody could remember it, and so clear "
    "that nobody felt the need to meet about it any longer.",
)

MANDARIN = (
    "早上好。",
    "请把窗户关上，外面开始下雨了。",
    "去图书馆的话，在第二个路口左转，一直走就到了。",
    "好的，没问题。",
    "您的预约是星期四上午九点半，请提前十分钟到达。",
    "奶奶每天傍晚都坐在院子里，一边剥豆子，一边给我们讲她小时候的故事。",
    "你在哪儿找到的？",
    "春天来得很慢，先是河面上的冰裂开了，接着柳树发了芽，最后连山顶的雪也化成了小溪。",
    "明天多云转晴，西风二到三级，最高气温十八度。",
    "修钟表的老师傅说，一只表走得准不准，不用看，听一听就知道；他把表贴在耳边，闭上眼睛，"
    "过了好一会儿才笑着点点头。",
)
