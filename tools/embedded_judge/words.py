# ruff: noqa: SIM905 - lists of words are read and changed as text
"""The vocabularies that the generator writes with."""

NAMES = """Ada Amir Anna Aya Ben Bella Bruno Carla Chen Clara Dan Dara Diego Dina Ed Ella Emma Eric Farah Felix Finn Flora
Gina Greg Hana Hugo Ida Igor Iris Ivan Jack Jada Jan Jorge Julia Kai Kara Ken Kim Lara Leo Lily Lina Luis Luna Mara Marco
Maria Max Mia Mika Mona Nadia Nick Nina Noah Nora Olga Omar Oscar Paul Petra Pia Rafa Rita Rob Rosa Ruth Sam Sara Sofia
Stan Tara Tess Tim Toby Tom Uma Vera Vic Wendy Will Yara Yusuf Zara Zoe""".split()

ITEMS = """apples pears plums lemons melons cherries carrots onions potatoes tomatoes beans eggs loaves rolls muffins cakes
cookies pies candies sandwiches pizzas bottles cups plates bowls spoons jars boxes bags baskets buckets crates books pages
notebooks letters stamps postcards photos posters tickets coins marbles buttons beads ribbons stickers cards balls kites
dolls puzzles toys blocks bricks tiles boards planks nails screws ropes pipes lamps candles chairs tables shelves rugs
blankets pillows shirts socks hats scarves gloves shoes flowers roses tulips seeds trees bushes leaves chickens ducks
goats sheep cows horses rabbits fish birds bees cars bikes trucks boats wheels pencils pens crayons brushes shells stones
feathers keys batteries cables phones magnets bracelets envelopes magazines""".split()

PLACES = """market school library bakery farm garden harbor station museum workshop factory office park stadium theater
hotel hospital kitchen warehouse shop clinic zoo camp village beach""".split()

PEOPLE = """friends cousins neighbors students classmates workers teachers children visitors guests customers players
brothers sisters teams families""".split()

UNITS = """dollars cents euros miles meters kilometers feet inches hours minutes seconds days weeks months years pounds
kilograms grams liters gallons people percent degrees pieces units points cm km kg mph""".split()

ADJECTIVES = """red blue green small large old new fresh dry heavy light cheap broken clean round wooden sweet spare
empty full yellow shiny plain rare common""".split()

COMMON = """about above across after again against all almost alone along already also although always among amount and
another any are area around ask at average away back be because been before begin being below best better between big
both bring build but buy by call came can carry change check choose close collect come complete cost could count cover
cut day decide deliver did different distance divide do does done down draw drink drive during each early earn easy eat
either eight end enough equal even evening ever every except expect extra far fast feed feet few fewer fifth fifty fill
final find finish first five fix follow food for found four fraction friend from fruit full gallon game gave get give
given glass go goes gone good got great group grow had half hand has have he hear height help her here hers high him his
hold home hour house how however hundred if in income instead into is it its job join jump just keep kept kind know last
late later learn leave left length less let like line list little live long look lose lost lot lunch made make many mean
measure meet might mile milk money month more morning most move much must name near need never next night nine no not
nothing now number of off often on once one only open or order other our out over own pack paid pair paint part party
pass pay per percent person pick place plan plant play plus possible pound price problem profit put quarter question
quick rate reach read ready reason receive remain rest result return rice ride right road room round row run said sale
same save saw say second see sell send set seven several share she short should show side simple since single sit six
size sleep slow small so sold some soon speed spend spent stand start stay step still stop store story street study such
sum summer sun take talk tall teach team tell ten than that the their them then there these they thing think third
thirty this those thousand three through time to today together told took top total town train travel trip try turn
twelve twenty twice two under until up us use used usual value very visit wait walk wall want was wash watch water way
we wear week weigh weight well went were what when where which while white who whole why wide width will win window
winter with without won word work worth would write wrong year yes yesterday yet you young your""".split()

SYLLABLES = """ba be bo bri ca ce cho co cra da de di dro du el en er fa fe fi flo ga ge gri ha he hi ho il in ing is ja jo
ka ke ki la le li lo lu ma me mi mo mu na ne ni no nu ol on or pa pe phi po pra qui ra re ri ro sa se shi so sta su ta te
ti to tri tu ul um un va ve vi vo wa we wi xa ya zo""".split()
